#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
/* hand written: same protocol */
typedef struct { PyObject_HEAD vectorcallfunc vc; PyObject *cls, *dyn, *sta, *missing, *wrappers; Py_ssize_t n; } K;
static PyObject *slow_flatten(K*k, PyObject*d){ PyErr_SetString(PyExc_RuntimeError,"slow"); return NULL; }
static PyObject *flat_vc(PyObject *s, PyObject*const*args, size_t nf, PyObject*kw){
  K*k=(K*)s; PyObject*d=PyObject_GenericGetDict(args[0],NULL); if(!d) return NULL;
  if(PyDict_GET_SIZE(d)!=k->n){PyObject*r=slow_flatten(k,d);Py_DECREF(d);return r;}
  Py_ssize_t nd=PyTuple_GET_SIZE(k->dyn), ns=PyTuple_GET_SIZE(k->sta);
  PyObject*c=PyTuple_New(nd);
  for(Py_ssize_t i=0;i<nd;i++){PyObject*v=PyDict_GetItemWithError(d,PyTuple_GET_ITEM(k->dyn,i)); if(!v) v=k->missing; Py_INCREF(v); PyTuple_SET_ITEM(c,i,v);}
  PyObject*a=PyTuple_New(ns+1); Py_INCREF(k->missing); PyTuple_SET_ITEM(a,0,k->missing);
  for(Py_ssize_t i=0;i<ns;i++){PyObject*v=PyDict_GetItemWithError(d,PyTuple_GET_ITEM(k->sta,i)); if(!v) v=k->missing; Py_INCREF(v); PyTuple_SET_ITEM(a,i+1,v);}
  PyObject*r=PyTuple_New(2); PyTuple_SET_ITEM(r,0,c); PyTuple_SET_ITEM(r,1,a); Py_DECREF(d); return r;
}
static PyObject *unflat_vc(PyObject *s, PyObject*const*args, size_t nf, PyObject*kw){
  K*k=(K*)s; PyObject*aux=args[0],*ch=args[1]; PyTypeObject*t=(PyTypeObject*)k->cls;
  PyObject*o=t->tp_alloc(t,0); if(!o) return NULL;
  Py_ssize_t nd=PyTuple_GET_SIZE(k->dyn), ns=PyTuple_GET_SIZE(k->sta);
  for(Py_ssize_t i=0;i<nd;i++){PyObject*v=PyTuple_GET_ITEM(ch,i); if(v!=k->missing) if(PyObject_GenericSetAttr(o,PyTuple_GET_ITEM(k->dyn,i),v)<0) return NULL;}
  for(Py_ssize_t i=0;i<ns;i++){PyObject*v=PyTuple_GET_ITEM(aux,i+1); if(v!=k->missing) if(PyObject_GenericSetAttr(o,PyTuple_GET_ITEM(k->sta,i),v)<0) return NULL;}
  return o;
}
static PyMemberDef mem[]={{"__vectorcalloffset__",T_PYSSIZET,offsetof(K,vc),READONLY},{0}};
static void dealloc(PyObject*o){ PyObject_Free(o);} 
static PyTypeObject KT={PyVarObject_HEAD_INIT(NULL,0).tp_name="cref.K",.tp_basicsize=sizeof(K),.tp_flags=Py_TPFLAGS_DEFAULT|Py_TPFLAGS_HAVE_VECTORCALL,.tp_vectorcall_offset=offsetof(K,vc),.tp_call=PyVectorcall_Call,.tp_dealloc=dealloc};
static PyObject*mk(PyObject*self,PyObject*args){ PyObject*cls,*dyn,*sta,*mis; int which; if(!PyArg_ParseTuple(args,"OOOOi",&cls,&dyn,&sta,&mis,&which)) return NULL;
 K*k=PyObject_New(K,&KT); k->vc= which?unflat_vc:flat_vc; Py_INCREF(cls);Py_INCREF(dyn);Py_INCREF(sta);Py_INCREF(mis); k->cls=cls;k->dyn=dyn;k->sta=sta;k->missing=mis;k->n=PyTuple_GET_SIZE(dyn)+PyTuple_GET_SIZE(sta); return (PyObject*)k;}
static PyMethodDef m[]={{"make",mk,METH_VARARGS,""},{0}};
static struct PyModuleDef md={PyModuleDef_HEAD_INIT,"cref",NULL,-1,m};
PyMODINIT_FUNC PyInit_cref(void){ PyType_Ready(&KT); return PyModule_Create(&md);}

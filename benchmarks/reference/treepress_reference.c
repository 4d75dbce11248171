/* Flatten and unflatten for Equinox Modules, written by hand in C.

   What the kernels of treepress are held against: the same protocol, and the same results
   down to the order of the instance's attributes, with nothing but what the C API offers.
   It is a reference for benchmarks, not meant for use. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <structmember.h>

/* A callable for one class. `cls` is NULL where flattening, `keys` where there are none. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *dynamic;  /* names of the children */
    PyObject *fixed;    /* names of the static fields */
    PyObject *wrappers; /* names of the wrapper attributes */
    PyObject *missing;  /* stands for an absent field */
    PyObject *keys;
    PyTypeObject *cls;
} Kernel;

static PyTypeObject *kernel_type;

/* A new reference to the value of `name`, or to `missing`. NULL with an error set. */
static inline PyObject *
value_of(PyObject *state, PyObject *name, PyObject *missing)
{
    PyObject *value = PyDict_GetItemWithError(state, name);
    if (value == NULL) {
        if (PyErr_Occurred()) {
            return NULL;
        }
        value = missing;
    }
    return Py_NewRef(value);
}

/* The values of `names` in a tuple, from index `start` on; those before are left empty. */
static inline PyObject *
values_of(PyObject *state, PyObject *names, PyObject *missing, Py_ssize_t start)
{
    Py_ssize_t count = PyTuple_GET_SIZE(names);
    PyObject *values = PyTuple_New(start + count);
    if (values == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = value_of(state, PyTuple_GET_ITEM(names, i), missing);
        if (value == NULL) {
            Py_DECREF(values);
            return NULL;
        }
        PyTuple_SET_ITEM(values, start + i, value);
    }
    return values;
}

/* As `values_of`, each value in a pair with its key. */
static inline PyObject *
pairs_of(PyObject *state, PyObject *names, PyObject *missing, PyObject *keys)
{
    Py_ssize_t count = PyTuple_GET_SIZE(names);
    PyObject *pairs = PyTuple_New(count);
    if (pairs == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *pair = PyTuple_New(2);
        if (pair == NULL) {
            Py_DECREF(pairs);
            return NULL;
        }
        PyTuple_SET_ITEM(pairs, i, pair);
        PyTuple_SET_ITEM(pair, 0, Py_NewRef(PyTuple_GET_ITEM(keys, i)));
        PyObject *value = value_of(state, PyTuple_GET_ITEM(names, i), missing);
        if (value == NULL) {
            Py_DECREF(pairs);
            return NULL;
        }
        PyTuple_SET_ITEM(pair, 1, value);
    }
    return pairs;
}

/* (missing or the wrapper attributes, *static values) */
static inline PyObject *
aux_of(Kernel *kernel, PyObject *state)
{
    PyObject *aux = values_of(state, kernel->fixed, kernel->missing, 1);
    if (aux == NULL) {
        return NULL;
    }
    Py_ssize_t fields = PyTuple_GET_SIZE(kernel->dynamic) + PyTuple_GET_SIZE(kernel->fixed);
    PyObject *wrapped;
    if (PyDict_GET_SIZE(state) == fields) {
        wrapped = Py_NewRef(kernel->missing);
    }
    else {
        wrapped = values_of(state, kernel->wrappers, kernel->missing, 0);
        if (wrapped == NULL) {
            Py_DECREF(aux);
            return NULL;
        }
    }
    PyTuple_SET_ITEM(aux, 0, wrapped);
    return aux;
}

static inline int
check_arguments(size_t nargsf, PyObject *kwnames, Py_ssize_t expected)
{
    Py_ssize_t given = PyVectorcall_NARGS(nargsf);
    if (given != expected || (kwnames != NULL && PyTuple_GET_SIZE(kwnames) != 0)) {
        PyErr_Format(PyExc_TypeError, "takes %zd positional arguments and no others (%zd given)",
                     expected, given);
        return -1;
    }
    return 0;
}

static inline PyObject *
flatten_any(Kernel *kernel, PyObject *instance, int with_keys)
{
    PyObject *state = PyObject_GenericGetDict(instance, NULL);
    if (state == NULL) {
        return NULL;
    }
    PyObject *children = NULL, *aux = NULL, *both = NULL;
    children = with_keys
                   ? pairs_of(state, kernel->dynamic, kernel->missing, kernel->keys)
                   : values_of(state, kernel->dynamic, kernel->missing, 0);
    if (children == NULL) {
        goto done;
    }
    aux = aux_of(kernel, state);
    if (aux == NULL) {
        goto done;
    }
    both = PyTuple_New(2);
    if (both == NULL) {
        goto done;
    }
    PyTuple_SET_ITEM(both, 0, children);
    PyTuple_SET_ITEM(both, 1, aux);
    children = aux = NULL;
done:
    Py_XDECREF(children);
    Py_XDECREF(aux);
    Py_DECREF(state);
    return both;
}

static PyObject *
flatten(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (check_arguments(nargsf, kwnames, 1) < 0) {
        return NULL;
    }
    return flatten_any((Kernel *)self, args[0], 0);
}

static PyObject *
flatten_with_keys(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    if (check_arguments(nargsf, kwnames, 1) < 0) {
        return NULL;
    }
    return flatten_any((Kernel *)self, args[0], 1);
}

/* Set what is not missing. `PyObject_GenericSetAttr` passes by the `__setattr__` of the
   class, which refuses: Modules are frozen. */
static inline int
set_all(PyObject *instance, PyObject *names, PyObject *values, Py_ssize_t start,
        PyObject *missing)
{
    Py_ssize_t count = PyTuple_GET_SIZE(names);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = PyTuple_GET_ITEM(values, start + i);
        if (value != missing
            && PyObject_GenericSetAttr(instance, PyTuple_GET_ITEM(names, i), value) < 0) {
            return -1;
        }
    }
    return 0;
}

static int
set_wrappers(PyObject *instance, PyObject *names, PyObject *values)
{
    if (!PyTuple_Check(values) || PyTuple_GET_SIZE(values) != PyTuple_GET_SIZE(names)) {
        PyErr_SetString(PyExc_ValueError, "aux has no wrapper attributes where they go");
        return -1;
    }
    PyObject *state = PyObject_GenericGetDict(instance, NULL);
    if (state == NULL) {
        return -1;
    }
    int result = 0;
    for (Py_ssize_t i = 0; result == 0 && i < PyTuple_GET_SIZE(names); i++) {
        result = PyDict_SetItem(state, PyTuple_GET_ITEM(names, i),
                                PyTuple_GET_ITEM(values, i));
    }
    Py_DECREF(state);
    return result;
}

static PyObject *
unflatten(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Kernel *kernel = (Kernel *)self;
    if (check_arguments(nargsf, kwnames, 2) < 0) {
        return NULL;
    }
    PyObject *aux = args[0], *children = args[1];
    if (!PyTuple_Check(aux) || !PyTuple_Check(children)
        || PyTuple_GET_SIZE(aux) != PyTuple_GET_SIZE(kernel->fixed) + 1
        || PyTuple_GET_SIZE(children) != PyTuple_GET_SIZE(kernel->dynamic)) {
        PyErr_SetString(PyExc_ValueError, "aux and children are not of this class");
        return NULL;
    }
    PyObject *instance = kernel->cls->tp_alloc(kernel->cls, 0);
    if (instance == NULL) {
        return NULL;
    }
    PyObject *wrapped = PyTuple_GET_ITEM(aux, 0);
    /* In Equinox's order, which the instance's `__dict__` shows. */
    if (set_all(instance, kernel->dynamic, children, 0, kernel->missing) < 0
        || (wrapped != kernel->missing
            && set_wrappers(instance, kernel->wrappers, wrapped) < 0)
        || set_all(instance, kernel->fixed, aux, 1, kernel->missing) < 0) {
        Py_DECREF(instance);
        return NULL;
    }
    return instance;
}

/* No garbage collection: what a kernel holds lives as long as JAX's registry, that is, for
   good. */
static void
kernel_dealloc(PyObject *self)
{
    Kernel *kernel = (Kernel *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(kernel->dynamic);
    Py_XDECREF(kernel->fixed);
    Py_XDECREF(kernel->wrappers);
    Py_XDECREF(kernel->missing);
    Py_XDECREF(kernel->keys);
    Py_XDECREF((PyObject *)kernel->cls);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyMemberDef kernel_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Kernel, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot kernel_slots[] = {
    {Py_tp_dealloc, kernel_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, kernel_members},
    {0, NULL},
};

static PyType_Spec kernel_spec = {
    .name = "treepress_reference.Kernel",
    .basicsize = sizeof(Kernel),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL
             | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = kernel_slots,
};

static PyObject *
make_kernel(vectorcallfunc call, PyObject *dynamic, PyObject *fixed, PyObject *wrappers,
            PyObject *missing, PyObject *keys, PyTypeObject *cls)
{
    Kernel *kernel = PyObject_New(Kernel, kernel_type);
    if (kernel == NULL) {
        return NULL;
    }
    kernel->call = call;
    kernel->dynamic = Py_NewRef(dynamic);
    kernel->fixed = Py_NewRef(fixed);
    kernel->wrappers = Py_NewRef(wrappers);
    kernel->missing = Py_NewRef(missing);
    kernel->keys = Py_XNewRef(keys);
    kernel->cls = (PyTypeObject *)Py_XNewRef((PyObject *)cls);
    return (PyObject *)kernel;
}

static PyObject *
make_flatten(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *dynamic, *fixed, *wrappers, *missing;
    if (!PyArg_ParseTuple(args, "O!O!O!O:flatten", &PyTuple_Type, &dynamic, &PyTuple_Type,
                          &fixed, &PyTuple_Type, &wrappers, &missing)) {
        return NULL;
    }
    return make_kernel(flatten, dynamic, fixed, wrappers, missing, NULL, NULL);
}

static PyObject *
make_flatten_with_keys(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *dynamic, *fixed, *wrappers, *missing, *keys;
    if (!PyArg_ParseTuple(args, "O!O!O!OO!:flatten_with_keys", &PyTuple_Type, &dynamic,
                          &PyTuple_Type, &fixed, &PyTuple_Type, &wrappers, &missing,
                          &PyTuple_Type, &keys)) {
        return NULL;
    }
    if (PyTuple_GET_SIZE(keys) != PyTuple_GET_SIZE(dynamic)) {
        PyErr_SetString(PyExc_ValueError, "there must be a key for each dynamic field");
        return NULL;
    }
    return make_kernel(flatten_with_keys, dynamic, fixed, wrappers, missing, keys, NULL);
}

static PyObject *
make_unflatten(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *cls, *dynamic, *fixed, *wrappers, *missing;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O:unflatten", &PyType_Type, &cls, &PyTuple_Type,
                          &dynamic, &PyTuple_Type, &fixed, &PyTuple_Type, &wrappers,
                          &missing)) {
        return NULL;
    }
    return make_kernel(unflatten, dynamic, fixed, wrappers, missing, NULL,
                       (PyTypeObject *)cls);
}

static PyMethodDef methods[] = {
    {"flatten", make_flatten, METH_VARARGS,
     "flatten(dynamic, static, wrappers, missing)\n--\n\n"
     "A callable (instance) -> (children, aux)."},
    {"flatten_with_keys", make_flatten_with_keys, METH_VARARGS,
     "flatten_with_keys(dynamic, static, wrappers, missing, keys)\n--\n\n"
     "A callable (instance) -> (((key, child), ...), aux)."},
    {"unflatten", make_unflatten, METH_VARARGS,
     "unflatten(cls, dynamic, static, wrappers, missing)\n--\n\n"
     "A callable (aux, children) -> instance, without __init__."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "treepress_reference",
    .m_doc = "Flatten and unflatten for Equinox Modules, written by hand in C.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit_treepress_reference(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) {
        return NULL;
    }
    kernel_type = (PyTypeObject *)PyType_FromSpec(&kernel_spec);
    if (kernel_type == NULL) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}

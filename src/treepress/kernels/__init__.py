"""The kernels: typed Python that mypyc compiles to C extensions.

Nothing in here imports JAX or Equinox. What a kernel needs of them (the sentinel, the
keys, the class) is handed to it once, when a class is registered.
"""

"""The same API as `treepress.kernels` in plain Python, for where nothing is compiled."""

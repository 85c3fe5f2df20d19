"""What is compiled: the layout of a module's parameters, its loss, and the settings of a compilation."""

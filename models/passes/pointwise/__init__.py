"""Functions of single values, in forms that keep their digits and are differentiated as one piece."""

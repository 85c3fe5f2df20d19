"""Operators of the library auscult-native, each in the place of several standard ones."""

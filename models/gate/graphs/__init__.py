"""Whole graphs of a bundle compared with torch, with each other, and with the library of native operators."""

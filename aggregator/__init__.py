"""Auscult in the cloud: the global steps of the methods, with torch."""

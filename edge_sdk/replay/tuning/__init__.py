"""`auscult tune`: settings of a method chosen on validation samples, by runs in memory."""

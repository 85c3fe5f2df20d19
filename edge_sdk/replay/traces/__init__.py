"""Traces where nobody has recorded any: generated ones and a published data set; and a look at those there are."""

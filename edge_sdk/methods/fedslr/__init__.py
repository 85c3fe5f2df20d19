"""FedSLR: low-rank global plus sparse personal component (Huang et al., TMLR 2023).

May import: contract, algebra, methods.shared.
"""

"""FedBCD and FedBCD-I: consensus between hospitals (Wu et al., AAAI 2021).

May import: contract, algebra, methods.shared.
"""

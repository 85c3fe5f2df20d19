"""FedAL: black-box distillation against a discriminator (Han et al.).

May import: contract, algebra, methods.shared.
"""

"""What an administrator sets up: the settings file, people's accounts, the operator's key, certificates, mask keys."""

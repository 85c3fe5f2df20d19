"""What runs on the service's own machine: the web application, its command, its demonstration and its backup."""

"""What runs have reached, alone and side by side: tables, pictures, models of devices."""

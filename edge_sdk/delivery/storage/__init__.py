"""What a node keeps of a run on its disk: tables, files, checksums and copies, which change in one transaction."""

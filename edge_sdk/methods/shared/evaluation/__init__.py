"""What nodes tell of rounds and of models, rounds in which models are judged, and training that diverges."""

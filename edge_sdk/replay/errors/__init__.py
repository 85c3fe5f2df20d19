"""What replays that are judged by errors share, of values and of windows: differences, tables, charts."""

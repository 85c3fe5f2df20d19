"""An aggregator's private pretrained model: its file, its training, and the regularisers it gives."""

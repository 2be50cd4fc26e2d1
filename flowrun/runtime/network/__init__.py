"""Result partitions, gates, channels and buffer pools."""

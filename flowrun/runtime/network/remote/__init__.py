"""Exchanges between processes: who writes listens, who reads asks for subpartitions and gives credit for them."""

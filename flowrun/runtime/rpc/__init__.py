"""How processes of a cluster call each other: addresses, handshakes, frames, connections and endpoints. It knows no message of flowrun."""

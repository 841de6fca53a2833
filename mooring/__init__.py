"""What the programs of Mooring share: documents in annotations, records on a node, and what reads and writes them."""

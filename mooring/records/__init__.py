"""The files that the programs of a node exchange, below its state folder and its run folder."""

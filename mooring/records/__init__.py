"""The files that programs of one node exchange, below its state folder and its run folder."""

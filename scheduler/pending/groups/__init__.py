"""Groups that wait: which are complete, their one entry in the queue, and room reserved for them."""

"""What is asked, which VF may be taken, what is tried on it, and the report: values in, values out."""

"""What is known of a processor before it runs: whether it comes out the same, whether order matters, and why."""

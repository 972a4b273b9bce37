"""Steps: the operations that users declare, on DataFrames, and their properties."""

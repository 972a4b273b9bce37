"""Topics and files as DataFrames with a stamp for each row."""

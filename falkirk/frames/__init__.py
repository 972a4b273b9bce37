"""DataFrames with a stamp for each row, made from topics and files."""

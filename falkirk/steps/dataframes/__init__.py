"""Parts that all steps on DataFrames use: the names of Falkirk's own columns, frames without rows, types."""

"""The steps of live regions on DataFrames with a stamp for each row. The Java module and Python run some of them."""

"""The plan: a declared graph becomes regions, hops and the reasons for them."""

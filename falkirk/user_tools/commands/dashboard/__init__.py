"""Dashboard: one page that shows an application live, from its home, and can roll it back."""

"""What people see of a run: live views, tables, summaries and the texts in them."""

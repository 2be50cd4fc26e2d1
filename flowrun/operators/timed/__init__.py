"""What operators share whose results depend on time: windows of a time, the rows' times, when something is due, clocks of a time zone."""

"""Real servers for tests: each module starts one for the test run on a free loopback port, and stops it at the end."""

"""The runtime: network, tasks, job master, mini cluster."""

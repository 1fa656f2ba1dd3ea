"""A site of protected telephony on this machine: DNS, balancers, hosts, appliances."""

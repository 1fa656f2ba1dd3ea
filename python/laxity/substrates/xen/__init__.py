"""The real hypervisor: what it does with a host, who carries that out, and what comes back."""

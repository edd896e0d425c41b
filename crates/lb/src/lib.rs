//! Load balancing without I/O: a plan, a balancer, and flat lock-free pickers

"""`resilient-io plan`: what a training job will ask of its store, what of that is refused, and what to change.

workload   what the person who trains says
limits     what the clouds document
forecast   requests a second on each limit, and what the admission law makes of them (the model of `simulate/`)
advice     changes of the workload, each with its own forecast
"""

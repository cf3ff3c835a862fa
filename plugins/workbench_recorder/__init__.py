"""Record what a running agent asks the APIs of its memory and what they answer, through a proxy, and read such a file."""

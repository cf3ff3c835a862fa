"""What a store should not hold: the commands `audit`, `leak` and `forgotten`, and Memories' view Audit."""

-- What was committed, by a token that nobody gives twice: the number of a transaction that a crash took is given again to another one.
CREATE TABLE team_commits (token text COLLATE "C" PRIMARY KEY, at timestamp NOT NULL);

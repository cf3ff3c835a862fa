-- What a language model answered, by model, prompt version and digest of the words that were sent.

CREATE TABLE reply_cache (
    model VARCHAR NOT NULL, prompt VARCHAR NOT NULL, sent VARCHAR NOT NULL, reply VARCHAR NOT NULL,
    PRIMARY KEY (model, prompt, sent)
);

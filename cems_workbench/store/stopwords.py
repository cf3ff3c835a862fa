"""English words that say nothing about what a text is about; dropped from documents and queries alike.

Articles, prepositions, pronouns, auxiliaries and their negations, question words. Words that carry meaning in code or
in questions about preference ("not", "no", "most", "only", "same", "off", "up") stay.
"""

_WORDS = """
    a an the this that these those
    i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers
    herself it its itself they them their theirs themselves
    am is are was were be been being do does did doing done have has had having will would shall should can could may
    might must ought
    and or but nor so if then than because as until while of at by for with about against between into through during
    to from in out on over under again further once there here
    when where why how what which who whom whose
    isn't aren't wasn't weren't don't doesn't didn't haven't hasn't hadn't won't wouldn't shan't shouldn't can't
    couldn't mightn't mustn't i'm i've i'd i'll we're we've we'd we'll you're you've you'd you'll he's he'd he'll
    she's she'd she'll it's it'd it'll they're they've they'd they'll that's there's here's what's who's where's
    when's how's let's
    dont doesnt didnt isnt arent wasnt cant wont im ive
"""

STOPWORDS = frozenset(_WORDS.split())

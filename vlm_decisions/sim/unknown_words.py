"""Words of the language that name nothing at the simulated desk, to ask what it cannot show."""

from __future__ import annotations

from zlib import crc32

NOUNS = tuple("""
giraffe elephant dog cat horse rabbit tiger zebra monkey parrot snake spider shark whale penguin
eagle goldfish hamster sheep goat camel kangaroo crocodile frog bee butterfly wolf bear squirrel
banana apple orange pizza sandwich burger cake cookie salad carrot tomato onion cheese sausage egg
lemon pineapple watermelon strawberry hammer screwdriver drill saw wrench ladder shovel bucket rope
nail scissors knife fork spoon plate bowl kettle toaster fridge oven microwave blender bathtub
toilet sink shower towel soap toothbrush mirror pillow blanket bed sofa wardrobe carpet lamp candle
umbrella hat scarf glove shoe boot jacket trousers dress necklace watch wallet suitcase backpack
bicycle car truck bus train aeroplane helicopter boat rocket tractor motorbike skateboard guitar
piano violin drum trumpet flute football basketball racket kite balloon doll robot drone
television radio printer tablet clock calendar stapler envelope newspaper painting statue
flower tree mountain river beach castle bridge church tent campfire snowman pumpkin skeleton ghost
dragon unicorn sword shield crown flag trophy telescope microscope syringe stethoscope bandage
wheelchair stroller cradle anchor lighthouse tornado volcano planet fire extinguisher
""".split())
ADJECTIVES = tuple("""
angry happy sad hungry thirsty tired bored nervous proud jealous famous rich poor married sick
asleep drunk rude polite clever lazy brave honest lonely pregnant barefoot bald bearded muscular
old young tall short Spanish French left-handed vegetarian invisible expensive cheap broken rusty
wooden plastic fragile edible poisonous
""".split())
VERBS = tuple("""
dancing sleeping singing swimming cooking jumping crying laughing smoking painting fishing skiing
climbing praying fighting kissing hugging whistling sneezing yawning juggling knitting gardening
shaving sweeping digging boxing surfing diving snoring limping crawling shouting begging shopping
driving cycling flying
""".split())


def is_held_out(word: str) -> bool:
    """Whether a word is kept out of training: every third, by its letters."""
    return crc32(word.lower().encode()) % 3 == 0

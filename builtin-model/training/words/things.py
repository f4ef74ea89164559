"""Things: goods, colours, food, animals, companies."""

PRODUCTS = """
lamp chair table desk sofa shelf mirror carpet curtain pillow blanket mattress kettle toaster blender oven fridge
freezer dishwasher vacuum iron heater fan radio speaker headphones keyboard mouse monitor laptop tablet phone charger
cable camera tripod lens printer scanner router projector watch clock alarm bracelet ring necklace wallet backpack
suitcase umbrella jacket coat scarf gloves hat boots sandals sneakers jeans shirt sweater dress skirt socks belt tie
bicycle helmet scooter skateboard tent hammock stove lantern compass canoe paddle kayak fishing-rod racket football
basketball dumbbell treadmill guitar violin piano drum flute trumpet novel notebook pencil pen marker eraser stapler
scissors globe puzzle doll robot kite drone hammer saw drill wrench screwdriver ladder rake shovel bucket hose vase
bowl plate cup mug spoon fork knife pan pot basket candle soap towel brush comb
""".split()

COLORS = """
red blue green yellow orange purple pink brown black white gray silver gold beige turquoise violet teal maroon navy
olive cyan magenta ivory crimson
""".split()

FOODS = """
apple pear plum cherry peach grape melon banana orange lemon mango fig date olive onion garlic carrot potato tomato
pepper cabbage spinach lettuce pumpkin leek bean pea lentil rice pasta bread butter cheese milk cream yogurt egg ham
bacon sausage chicken turkey salmon tuna trout shrimp honey sugar salt flour oil vinegar mustard tea coffee juice
cocoa chocolate biscuit cake pie soup salad walnut almond raisin ginger basil mint parsley thyme
""".split()

ANIMALS = """
dog cat horse cow goat sheep pig donkey rabbit hamster parrot canary goose duck hen turtle lizard snake frog goldfish
ferret pony llama owl falcon hedgehog mouse rat pigeon peacock lynx otter beaver badger wolf fox bear deer
""".split()

COMPANIES = """
Acme Alpine Amber Apex Arcadia Argon Aster Atlas Aurora Axiom Basalt Beacon Birch Borealis Bramble Brightside Canvas
Cascade Cedar Chroma Cinder Citadel Clearwater Cobalt Comet Copperfield Coral Crestline Cypress Dynamo Eastgate Echo
Ember Enigma Equinox Evergreen Falcon Fernwood Flint Foundry Frontier Galaxy Garnet Glacier Granite Greenfield Harbor
Hazel Helix Heron Highland Horizon Indigo Ironwood Ivory Juniper Keystone Kestrel Lagoon Lantern Larkspur Laurel
Lighthouse Lumen Magnolia Maple Marble Meridian Meteor Midland Mistral Monarch Mosaic Nebula Nimbus Northwind Nova
Oakridge Obsidian Onyx Opal Orbit Orchard Orion Osprey Palisade Paragon Pebble Pelican Phoenix Pinnacle Pioneer Polaris
Prism Quarry Quartz Quasar Raven Redwood Ridgeway Riverstone Saffron Sandpiper Sapphire Sequoia Silverline Skyline
Solaris Sparrow Spectrum Starling Sterling Stonebridge Summit Sunrise Sycamore Tamarack Tangent Tempest Terra Thistle
Timber Topaz Trident Tundra Umbra Vanguard Vantage Velvet Vertex Vista Vortex Walnut Wayfarer Westwood Willow Zenith
Zephyr
""".split()

TITLE_WORDS = """
silent golden broken hidden last first lost winter summer river mountain ocean forest desert city garden house tower
bridge road night morning star moon sun shadow light storm rain snow fire stone glass iron paper letter song dream
memory secret promise journey island harbor letter clock mirror door window map
""".split()

"""Opinions: what is judged, and the words that praise or condemn it."""

SUBJECTS = """
movie, film, book, novel, song, album, concert, show, play, restaurant, hotel, room, service, food, soup, pizza, cake,
coffee, breakfast, dinner, phone, laptop, camera, keyboard, screen, battery, app, game, website, update, course,
lesson, teacher, trip, flight, train ride, tour, beach, museum, party, garden, car, bike, chair, sofa, jacket, dress,
shoes, headphones, speaker, printer, staff, driver, delivery, packaging, support team, landlord, gym, haircut, library,
software, engine, tool, podcast, magazine, exhibition, waiter, view, apartment, weather, neighbour, meeting, manual,
story, ending, sound, picture, design, price, quality, taste, atmosphere, performance
""".replace("\n", " ").split(",")
SUBJECTS = [item.strip() for item in SUBJECTS]

POSITIVE = """
wonderful great excellent amazing fantastic brilliant superb lovely delightful charming perfect outstanding marvelous
beautiful enjoyable impressive splendid terrific awesome pleasant friendly helpful reliable comfortable delicious fun
exciting inspiring elegant remarkable fresh cozy clever smooth fast warm bright magnificent stunning flawless generous
satisfying refreshing thoughtful incredible adorable touching solid fabulous exceptional
""".split()

NEGATIVE = """
terrible awful horrible bad boring disappointing dreadful ugly dirty rude slow broken useless annoying poor cheap cold
noisy painful disgusting miserable unpleasant confusing clumsy bland stale weak unreliable uncomfortable frustrating
dull tedious lousy mediocre pathetic ridiculous sloppy overpriced faulty nasty gloomy depressing worthless shabby
unbearable tasteless dishonest careless chaotic atrocious
""".split()

PRAISE = """
I loved it; I really enjoyed it; it made my day; I would buy it again; I recommend it to everyone; it made me smile;
I want to come back soon; it was worth every penny; I am so happy with it; it exceeded my hopes; we had a great time;
I can't stop smiling; I would give it ten stars; it works like a charm; I fell in love with it; we will return;
my whole family loved it; it was a joy; I am impressed; thank you so much
""".replace("\n", " ").split(";")
PRAISE = [item.strip() for item in PRAISE]

COMPLAINTS = """
I hated it; I want my money back; it ruined my day; I would never buy it again; I warn everyone about it; it made me
angry; I will not come back; it was a waste of money; I am so unhappy with it; it fell below my hopes; we had a bad
time; I can't stop complaining; I would give it zero stars; it broke after a day; I fell asleep; we left early; my
whole family hated it; it was a pain; I am disappointed; never again
""".replace("\n", " ").split(";")
COMPLAINTS = [item.strip() for item in COMPLAINTS]

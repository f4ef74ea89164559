"""Game characters: what they wear and wield."""

ARMOR = """
leather, chainmail, plate, studded leather, scale mail, bone armor, bronze plate, dragon scale, padded cloth, hide
armor, ring mail, mithril shirt, steel cuirass, wooden shield, silk robe, iron breastplate, fur cloak, obsidian plate,
crystal mail, shadow cloak, ranger coat, spiked plate, golden armor, wicker vest, elven mail, dwarven plate, turtle
shell, feather cape, stone skin, thorn vest
""".replace("\n", " ").split(",")
ARMOR = [item.strip() for item in ARMOR]

WEAPONS = """
sword, axe, mace, spear, bow, crossbow, dagger, halberd, war hammer, sling, staff, whip, trident, scythe, katana,
rapier, battle axe, long bow, throwing knife, flail, morning star, short sword, lance, quarterstaff, war scythe, fire
wand, ice staff, bone club, silver dagger, iron fist, chain blade, glaive, pike, sabre, cutlass, blowpipe, boomerang,
great sword, hand axe, thunder rod
""".replace("\n", " ").split(",")
WEAPONS = [item.strip() for item in WEAPONS]

ROLES = "warrior archer wizard rogue paladin bard monk hunter druid knight witch ranger healer pirate smith".split()

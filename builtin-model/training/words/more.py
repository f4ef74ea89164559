"""Longer and more everyday values: names, places, jobs, firms, dates, addresses and pastimes of several words."""


def listed(text: str) -> list:
    return [item.strip() for item in text.replace("\n", " ").split(";") if item.strip()]


FIRST = """
Aaron Abigail Ahmed Aiden Alejandro Alexander Alexandra Alexis Alison Amanda Amber Amelia Amy Andre Andrew Angela Annie Antonio April Ashley Audrey Austin Ava Beatrice Bella Benjamin Beth Betty Bill
Bob Bradley Brandon Brenda Brian Bridget Caleb Cameron Carmen Caroline Catherine Charles Charlotte Chloe Chris Christina Christopher Cindy Claire Cody Colin Connor Craig Cynthia Daisy Damian Danielle Darren
Dave Dean Deborah Derek Diego Dominic Donald Donna Dorothy Doug Dylan Eddie Elena Elizabeth Ellen Emily Eric Erin Ethan Eugene Evan Evelyn Faith Frances Francis Fred Gary Gavin Geoffrey Gerald Giovanni
Gloria Gordon Greg Hailey Heather Heidi Holly Howard Ian Imran Isabella Ivy Jackson Jake James Jamie Janet Jason Jay Jean Jeff Jennifer Jenny Jeremy Jerry Jessica Jill Jim Joe Joel Jordan Joseph Josh Joyce
Juan Judy Julian Justin Kate Kathleen Katie Keith Kelly Ken Kevin Kim Kyle Larry Lauren Lee Leon Leslie Liam Lily Linda Lindsay Logan Louise Lucas Lucy Luke Lydia Lynn Madison Malcolm Manuel Marcus Maria
Marilyn Mark Martha Mary Mason Matt Matthew Maureen Megan Melissa Michael Michelle Miguel Mike Miles Molly Monica Morgan Nancy Naomi Natalie Nathan Neil Nicholas Nicole Nigel Norman Olivia Owen Pamela Pat
Patricia Patrick Peggy Penny Peter Phil Phoebe Rachel Ralph Raymond Rebecca Ricardo Richard Rick Robin Rodney Roger Ron Rory Rose Ross Roy Russell Ryan Sally Sam Samantha Samuel Sandra Sarah Scott Sean
Sebastian Sergio Sharon Shaun Sheila Shirley Simon Sophie Stanley Stephanie Stephen Steve Stuart Sue Susan Suzanne Sylvia Tanya Taylor Ted Tiffany Tim Timothy Tony Tracy Trevor Tyler Vanessa Veronica
Victoria Vincent Violet Virginia Wayne Wesley William Zachary Akira Amina Ananya Arjun Bjorn Chidi Deepak Emeka Fatou Gudrun Haruto Hiroshi Ingmar Jiro Kofi Kwame Lakshmi Mahmoud Mei-Ling Mohammed Ngozi
Nikolai Oksana Ottavia Pilar Qing Rahul Rashid Sakura Sanjay Siobhan Soren Svetlana Takeshi Tuan Vikram Wei Xavier Yasmine Youssef Zainab
""".split()

LAST = """
Adams Alexander Anderson Armstrong Bailey Barnes Bennett Black Boyd Bradley Brennan Bryant Butler Byrne Callahan Campbell Carlson Carpenter Chambers Chapman Chavez Chen Cho Clarke Coleman Connor Cox Crawford
Cruz Cunningham Daniels Davidson Davis Dawson Doyle Duncan Edwards Elliott Ellis Ferguson Fernandez Fitzgerald Flores Ford Foster Fraser Freeman Fuller Gallagher George Gilbert Gonzalez Gordon Griffin Hall
Hamilton Hamilton Hanson Harris Harrison Hart Harvey Henderson Hernandez Hicks Holmes Howard Hudson Hunt Jackson James Jacobs Jenkins Jennings Jordan Kennedy Kim Kowalski Lambert Lawrence Lawson Lindqvist Little
Lloyd Long Lynch MacDonald Malone Marshall Martin Matthews McCarthy McCoy McDonald McKenzie Mendoza Mills Mitchell Montgomery Morris Morrison Murphy Murray Myers Nelson Newman Nichols O'Brien O'Connor O'Neill Okafor
Okonkwo Oliver Owens Palmer Park Parsons Payne Perkins Perry Peters Peterson Phillips Pierce Powell Price Ramirez Ray Reynolds Rhodes Rice Richards Richardson Riley Roberts Robertson Rodriguez Rogers Rose Ross
Ruiz Ryan Sanchez Sanders Saunders Scott Sharp Shepherd Simpson Snyder Spencer Stephens Stevens Stewart Sullivan Tan Thomas Tran Tucker Vasquez Wallace Walsh Wang Warren Washington Watkins Watson Weaver Wells
Wheeler Williams Williamson Willis Wilson Wong Woods Wu Yamamoto Yang Yilmaz
""".split()

CITIES = listed("""New York; Los Angeles; San Francisco; San Diego; New Orleans; Las Vegas; Salt Lake City; Kansas City; Rio de Janeiro; Buenos Aires; Mexico City; Cape Town; Tel Aviv; Hong Kong; Kuala Lumpur; Ho Chi Minh City; New Delhi;
    Abu Dhabi; The Hague; St. Louis; San Jose; Santa Fe; Sao Paulo; Port Louis; Addis Ababa; Newcastle; Sheffield; Nottingham; Cambridge; Brighton; Plymouth; Aberdeen; Dundee; Galway; Limerick; Denver; Boston; Chicago; Philadelphia; Atlanta;
    Baltimore; Sacramento; Minneapolis; Cleveland; Pittsburgh; Nashville; Ottawa; Winnipeg; Halifax; Perth; Canberra; Christchurch; Bogota; Medellin; Caracas; Montevideo; Guadalajara; Kolkata; Chennai; Bangalore; Pune; Hyderabad; Jaipur; Busan;
    Nagoya; Sapporo; Taipei; Singapore; Colombo; Kathmandu; Tbilisi; Yerevan; Baku; Tashkent; Almaty; Ljubljana; Bratislava; Gdansk; Wroclaw; Krakow; Poznan; Turku; Gothenburg; Stavanger; Odense; Nice; Rennes; Nuremberg; Hanover; Dortmund; Mainz;
    Zaragoza; Granada; Cordoba; Coimbra; Braga; Verona; Pisa; Bari; Thessaloniki; Patras; Nicosia; Valletta; Asuncion; La Paz; Accra; Kigali; Harare; Windhoek; Maputo""")

JOBS = listed("""software engineer; data scientist; high school teacher; taxi driver; graphic designer; project manager; civil engineer; flight attendant; truck driver; social worker; sales assistant; marketing manager; police officer; bus driver;
    real estate agent; personal trainer; web developer; fashion designer; stage actor; head chef; product manager; kindergarten teacher; research assistant; veterinary nurse; primary school teacher; security guard; bank clerk; marine biologist; tour guide;
    opera singer; film director; piano teacher; tax adviser; night porter; hairdresser; beekeeper; consultant; analyst; student; receptionist; blogger; economist; paramedic; stockbroker; bricklayer; bartender; goldsmith; jockey; archivist; plasterer; dietitian;
    firefighter; lifeguard; referee; pastry chef; wedding planner; copywriter; interpreter; radiologist; cardiologist; physiotherapist; statistician; tailor; watchmaker; winemaker""")

COMPANY_TAILS = ["& Sons", "Ltd", "Inc", "Group", "Industries", "Systems", "Labs", "Software", "Foods", "Motors", "Bank", "Partners", "Studios", "Electronics", "Logistics", "Energy", "Media", "Consulting", "Solutions", "Press", "Airlines", "Pharma"]

PASTIMES = listed("""chess; hiking; painting; sailing; cooking; swimming; running; cycling; knitting; gardening; photography; fishing; pottery; climbing; dancing; yoga; tennis; football; karate; surfing; skiing; reading; baking; birdwatching; stamp collecting;
    playing the violin; playing the guitar; rock climbing; horse riding; table tennis; model trains; video games; volleyball; archery; origami; fencing; badminton; singing; origami; juggling; astronomy; calligraphy; judo; rowing; golf""")
STREETS = "Oak Elm Maple Cedar Park Church Mill Station High Bridge River Castle King Queen Garden School Lake Hill Market Victoria Rose Abbey Chestnut Orchard Harbour Green".split()
STREET_KINDS = ["Street", "Road", "Avenue", "Lane", "Drive", "Square", "Way", "Close"]
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
LANGUAGES = "English French German Spanish Italian Portuguese Dutch Polish Russian Turkish Arabic Hindi Mandarin Japanese Korean Swedish Greek Finnish Danish Czech Hungarian Swahili Urdu Welsh".split()
SUBJECTS = listed("mathematics; physics; biology; history; chemistry; geography; music; art; computer science; economics; law; medicine; philosophy; psychology; literature; engineering; architecture; linguistics; political science; nursing")
GENRES = listed("thriller; comedy; drama; horror; romance; science fiction; fantasy; documentary; western; mystery; jazz; rock; folk; opera; crime; adventure; animation; musical")
PRODUCTS = listed("""coffee maker; washing machine; desk lamp; office chair; running shoes; winter jacket; gaming laptop; electric scooter; phone case; water bottle; rain coat; alarm clock; garden hose; frying pan; air fryer; wireless mouse; USB cable; hair dryer;
    bluetooth speaker; smart watch; hiking boots; sleeping bag; bread knife; cutting board; picture frame; tea pot; yoga mat; tennis racket; power bank; bookshelf; dining table; leather sofa; mountain bike; baby stroller; rice cooker; wall clock; noise-cancelling headphones""")
DEPARTMENTS = listed("sales; marketing; finance; engineering; support; human resources; legal; research; logistics; design; purchasing; IT; accounting; production; security")
